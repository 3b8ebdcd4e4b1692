"""Experiments, their committed records, and the tables and plots of the documents."""
