"""MLflow's scoring server: rows to `/invocations`, predictions back."""

from __future__ import annotations

from typing import Any

import numpy as np

from sointer import containers
from sointer.adapters.http_connection import Connection
from sointer.adapters.json_rows import rows_and_columns
from sointer.adapters.tensors import one_table
from sointer.blackbox.replies import NamedTable
from sointer.blackbox.retrying import Unanswered


class Invocations:
    """A model behind `/invocations`: DataFrames go with their columns, all else as plain rows."""

    def __init__(self, connection: Connection, path: str, output_name: str | None) -> None:
        self.connection = connection
        self.path = path
        self.output_name = output_name
        self.who = f"the model at {connection.root}{path}"

    def __call__(self, X: Any) -> Any:
        """The model's reply for the rows of X."""
        rows, columns = rows_and_columns(X)
        request = {"inputs": rows} if columns is None else {"dataframe_split": {"columns": columns, "data": rows}}
        reply = self.connection.json("POST", self.path, request)
        if "predictions" not in reply:
            raise Unanswered(f"The reply of {self.who} has no predictions, but the keys {sorted(reply)[:10]}.")
        return self._table(reply["predictions"], containers.n_rows(X))

    def _table(self, predictions: Any, n_rows: int) -> Any:
        if isinstance(predictions, list) and predictions and all(isinstance(row, dict) for row in predictions):
            names = list(predictions[0])
            if any(list(row) != names for row in predictions):
                raise Unanswered(f"The predictions of {self.who} do not have the same columns in every row.")
            if self.output_name is None:
                return NamedTable([list(row.values()) for row in predictions], [str(name) for name in names])
            predictions = {name: [row[name] for row in predictions] for name in names}
        if not isinstance(predictions, dict):
            return predictions
        try:
            outputs = {str(name): np.array(values) for name, values in predictions.items()}
        except ValueError:
            raise Unanswered(f"The predictions of {self.who} have parts of different lengths.") from None
        return one_table(outputs, self.output_name, n_rows, self.who)
