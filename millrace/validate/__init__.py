"""Judging: one chunk in, typed accepted rows and rejected rows with every reason out. No Kafka, no Spark, no disk."""
