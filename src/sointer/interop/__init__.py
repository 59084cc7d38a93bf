"""Bridges to other packages: shap, captum, Quantus, MLflow, ONNX. Each is imported only when its module is used."""
