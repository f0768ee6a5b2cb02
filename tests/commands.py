"""What tests of commands share."""

import json


def strict_json(text: str):
    """Parse all of stdout; NaN and Infinity are no JSON."""

    def reject(name):
        raise AssertionError(name)

    return json.loads(text, parse_constant=reject)
