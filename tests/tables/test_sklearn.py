"""scikit-learn's own checks of an estimator, and why some of them do not apply to tables."""

import warnings

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from anyorder.tables.model import TableModel

ANY_COLUMNS = "a frame may lack columns, and have more: what is not there is marginalised"
NO_CLASSIFIER = "the checks fit a target that is a number, and ask for probabilities of its levels"
OUR_WORDS = "it is refused, in a sentence of our own"

DO_NOT_APPLY = {
    "check_n_features_in_after_fitting": ANY_COLUMNS,
    "check_transformer_general": ANY_COLUMNS,
    "check_estimators_dtypes": NO_CLASSIFIER,
    "check_sample_weight_equivalence_on_dense_data": NO_CLASSIFIER,
    "check_methods_sample_order_invariance": NO_CLASSIFIER,
    "check_methods_subset_invariance": NO_CLASSIFIER,
    "check_dict_unchanged": NO_CLASSIFIER,
    "check_complex_data": OUR_WORDS,
    "check_estimators_empty_data_messages": OUR_WORDS,
    "check_fit2d_predict1d": OUR_WORDS,
    "check_estimator_sparse_tag": OUR_WORDS,
    "check_estimator_sparse_array": OUR_WORDS,
    "check_estimator_sparse_matrix": OUR_WORDS,
    "check_sample_weights_not_an_array": "what is no frame and no array is refused",
    "check_transformer_data_not_an_array": "what is no frame and no array is refused",
    "check_transformer_preserve_dtypes": "transform gives a frame, whose columns keep their dtypes",
}


with warnings.catch_warnings():
    # It is no BaseEstimator: scikit-learn would be imported wherever a table is.
    warnings.filterwarnings("ignore", "Estimator TableModel does not inherit")
    checks = parametrize_with_checks(
        [TableModel(layers=1, width=8, heads=2, max_steps=2)],
        expected_failed_checks=lambda _: DO_NOT_APPLY,
    )


@pytest.mark.filterwarnings("ignore")
@checks
def test_estimator_checks(estimator, check):
    check(estimator)
