"""What spark-submit runs. A directory of its own: Python searches a script's directory first, and the package has a types.py."""
