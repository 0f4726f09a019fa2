"""A tenant's own service account at Google: its key file in, credentials out that sign tokens in this process.

Nothing in the key file makes us connect anywhere. The platform's own account is never used."""

import json
from typing import Any

from millrace.model.errors import Invalid


def service_account(key: str, scopes: tuple[str, ...]) -> Any:
    try:
        from google.oauth2.service_account import Credentials  # noqa: PLC0415
    except ImportError:
        raise Invalid(
            "Google's services need google-auth.",
            remedy="Install millrace[gcs] or millrace[bigquery].",
            code="no_driver",
        ) from None
    try:
        account = Credentials.from_service_account_info(json.loads(key), scopes=scopes)  # type: ignore[no-untyped-call]
    except (ValueError, TypeError):
        # The error text of the library could repeat the key.
        raise Invalid(
            "The credentials are no service account's key file.", remedy="Give the JSON as Google hands it out."
        ) from None
    return account.with_always_use_jwt_access(True)
