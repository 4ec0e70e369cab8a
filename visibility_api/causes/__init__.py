"""Why a program died, by the last lines that it printed."""
