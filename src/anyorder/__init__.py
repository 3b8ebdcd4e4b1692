"""Train one model, then ask it anything of the form p(these variables | those variables).

The public names are listed in `__init__.pyi` and imported when they are first used, so that `import
anyorder` and the command line's help do not wait for torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__ = "0.1.0"
