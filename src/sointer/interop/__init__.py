"""Bridges to other packages: shap, captum, Quantus, MLflow. Each is imported only when its module is used."""
