"""Other packages: dask, MLflow, shap, captum, quantus."""
