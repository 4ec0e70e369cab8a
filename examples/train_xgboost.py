"""XGBoost on scikit-learn's breast cancer data."""

import xgboost
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from trainjob_progress.integrations.xgboost import ReportProgress

ROUNDS = 300
x_train, x_test, y_train, y_test = train_test_split(*load_breast_cancer(return_X_y=True), random_state=0)
train, test = xgboost.DMatrix(x_train, y_train), xgboost.DMatrix(x_test, y_test)
results = {}
xgboost.train(
    {"objective": "binary:logistic", "eval_metric": ["logloss", "auc"], "learning_rate": 0.05},
    train,
    ROUNDS,
    evals=[(test, "test")],
    evals_result=results,
    verbose_eval=50,
    callbacks=[ReportProgress(total_rounds=ROUNDS)],
)
print(f"auc={results['test']['auc'][-1]:.3f}")
