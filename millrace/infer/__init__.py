"""What-if: a file and a table in, the judge's result out; or a file alone in, a proposed declaration out. Imports nothing."""
