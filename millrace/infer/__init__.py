"""What-if: files in, what the judge would say of them out; files alone in, a table's declaration out. Nothing is imported."""
