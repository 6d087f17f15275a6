"""What other engines reached, for scale.

Source: our own measurement of November 2026 on a machine of the same kind: two virtual cores that
act like one, fdatasync about 0.1 ms. Not measured by this benchmark, not on this day and not beside
our runs: read differences below 1.5 times as ties. `python -m bench.peers` measures Restate, DBOS
and Absurd anew, beside ours.
"""

SOURCE = "measured in November 2026, on another day; `python -m bench.peers` measures them beside ours"

PEERS = ("Restate", "DBOS sqlite", "DBOS sqlite+WAL", "Absurd pg", "Temporal dev")

NUMBERS: dict[str, dict[str, str]] = {
    "S1": {
        "Restate": "359/s",
        "DBOS sqlite": "19.6/s",
        "DBOS sqlite+WAL": "35.5/s",
        "Absurd pg": "111/s",
        "Temporal dev": "15/s",
    },
    "S2": {
        "Restate": "6.1 / 8.5 ms",
        "DBOS sqlite": "18.2 / 30.0 ms",
        "DBOS sqlite+WAL": "11.1 / 17.7 ms",
        "Absurd pg": "58 / 74 ms",
        "Temporal dev": "103 / 238 ms",
    },
    "S3": {
        "Restate": "1.39 ms",
        "DBOS sqlite": "4.9 ms",
        "DBOS sqlite+WAL": "4.3 ms",
        "Absurd pg": "3.9 ms",
        "Temporal dev": "not finished",
    },
    "S4": {
        "Restate": "278 / 554 ms",
        "DBOS sqlite": "not finished",
        "DBOS sqlite+WAL": "4.5 / 147 ms, 10 in flight",
        "Absurd pg": "3,098 / 5,331 ms",
        "Temporal dev": "-",
    },
    "S5": {
        "Restate": "407/s",
        "DBOS sqlite": "not finished",
        "DBOS sqlite+WAL": "88/s",
        "Absurd pg": "422/s",
        "Temporal dev": "53/s",
    },
    "S6": {
        "Restate": "0.65 s",
        "DBOS sqlite": "11.7 s",
        "DBOS sqlite+WAL": "-",
        "Absurd pg": "6.1 s",
        "Temporal dev": "not finished",
    },
    "S7": {
        "Restate": "3.9 s",
        "DBOS sqlite": "40.5 s",
        "DBOS sqlite+WAL": "-",
        "Absurd pg": "8.0 s, of 98 runs",
        "Temporal dev": "-",
    },
    "S9": {
        "Restate": "1,298/s",
        "DBOS sqlite": "116/s",
        "DBOS sqlite+WAL": "-",
        "Absurd pg": "2,011/s",
        "Temporal dev": "-",
    },
}
