"""LightGBM on scikit-learn's breast cancer data."""

import lightgbm
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from trainjob_progress.integrations.lightgbm import ReportProgress

x_train, x_test, y_train, y_test = train_test_split(*load_breast_cancer(return_X_y=True), random_state=0)
train = lightgbm.Dataset(x_train, y_train)
progress, results = ReportProgress(), {}
lightgbm.train(
    {"objective": "binary", "metric": ["binary_logloss", "auc"], "learning_rate": 0.05, "verbosity": -1},
    train,
    300,
    valid_sets=[train.create_valid(x_test, y_test)],
    valid_names=["test"],
    callbacks=[
        progress,
        lightgbm.early_stopping(20, first_metric_only=True),
        lightgbm.log_evaluation(50),
        lightgbm.record_evaluation(results),
    ],
)
progress.finish()  # early stopping tells callbacks nothing
print(f"auc={results['test']['auc'][-1]:.3f}")
