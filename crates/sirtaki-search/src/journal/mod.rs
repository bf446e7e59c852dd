//! A study as lines of JSON in the format of Optuna's journal storage. Files and locks are the business of the caller.
