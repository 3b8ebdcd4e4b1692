"""What most users import: a model of each domain that fits, answers, saves and loads."""
