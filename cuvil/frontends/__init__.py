"""Frontends: models as users have them to graphs."""
