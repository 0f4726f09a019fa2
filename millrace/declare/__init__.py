"""Declarations: a document in, a checked declaration out; and the JSON Schemas of the documents."""
