"""CatBoost on scikit-learn's breast cancer data."""

from catboost import CatBoostClassifier
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from trainjob_progress.integrations.catboost import ReportProgress

ITERATIONS = 300
x_train, x_test, y_train, y_test = train_test_split(*load_breast_cancer(return_X_y=True), random_state=0)
progress = ReportProgress(total_iterations=ITERATIONS)
model = CatBoostClassifier(
    iterations=ITERATIONS, learning_rate=0.05, depth=4, custom_metric=["AUC"], allow_writing_files=False
)
model.fit(x_train, y_train, eval_set=(x_test, y_test), verbose=50, callbacks=[progress])
progress.finish()  # the overfitting detector tells callbacks nothing
print(f"auc={model.get_best_score()['validation']['AUC']:.3f}")
