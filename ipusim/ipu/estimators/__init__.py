"""Estimators: a model function, trained, evaluated and asked for predictions by programs of the one kind there is."""
