"""The studies behind docs/results: what is measured, the results, the pages and figures made from them."""
