"""Signatures: what any Standard Webhooks library would compute. The expected values were made with OpenSSL."""

import base64

import pytest

from millrace.notify.subscription import Subscription, rotated
from millrace.outbound.signing import new_secret, signature, signed_headers

PUBLISHED = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OURS = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


@pytest.mark.parametrize(
    ("secret", "event_id", "timestamp", "body", "expected"),
    [
        (
            PUBLISHED,
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1614265330,
            '{"test": 2432232314}',
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        ),
        (
            OURS,
            "op_1.settle_import.0",
            1700000000,
            '{"id":"op_1.settle_import.0","data":{"name":"Zoë"}}',
            "v1,DzUlD/6iFdMf0uaBiPO8bLa93b1oRYBiVa48ICJw9dc=",
        ),
    ],
)
def test_known_signatures(secret: str, event_id: str, timestamp: int, body: str, expected: str) -> None:
    assert signature(secret, event_id, timestamp, body.encode()) == expected


def test_headers_carry_one_signature_per_valid_secret() -> None:
    headers = signed_headers([OURS, PUBLISHED], "op_1.settle_import.0", 1700000000, b"{}")
    first, second = headers.pop("webhook-signature").split(" ")
    assert headers == {"webhook-id": "op_1.settle_import.0", "webhook-timestamp": "1700000000"}
    assert first == signature(OURS, "op_1.settle_import.0", 1700000000, b"{}")
    assert second == signature(PUBLISHED, "op_1.settle_import.0", 1700000000, b"{}")


def test_secrets_are_long_and_never_the_same() -> None:
    made = {new_secret() for _ in range(50)}
    assert len(made) == 50
    assert all(len(base64.b64decode(secret.removeprefix("whsec_"), validate=True)) >= 24 for secret in made)


def test_a_rotated_secret_stays_valid_until_its_overlap_is_over() -> None:
    now = 1_000_000
    once = rotated([{"secret": OURS, "until_us": None}], until_us=now + 50, now_us=now)
    assert [each["until_us"] for each in once] == [None, now + 50]
    assert once[1]["secret"] == OURS
    twice = rotated(once, until_us=now + 500, now_us=now + 10)
    assert [each["until_us"] for each in twice] == [None, now + 500, now + 50], "an end once announced is not put off"
    late = rotated(twice, until_us=now + 900, now_us=now + 60)
    assert OURS not in [each["secret"] for each in late]


def test_an_ended_secret_signs_nothing() -> None:
    secrets = ((PUBLISHED, None), (OURS, 1))
    one = Subscription("sub_1", "acme", "hook", "https://example.org/", ("*",), "in_order", True, secrets)
    assert one.valid_secrets() == [PUBLISHED]
