"""``@ebbtide.tool``: a function whose calls are recorded in the session that is open around them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from ebbtide.session import current

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def tool(function: FunctionT) -> FunctionT:
    """Record each call of ``function`` (plain or async) with its named arguments and its result.

    Outside a session the function just runs. What it raises is recorded as an error and raised on.
    """
    signature = inspect.signature(function)
    name = function.__name__

    def record(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, error: str | None) -> None:
        session = current.get()
        if session is not None:
            session.tool(name, dict(signature.bind(*args, **kwargs).arguments), result, error=error)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def asynchronous(*args: Any, **kwargs: Any) -> Any:
            try:
                result = await function(*args, **kwargs)
            except Exception as error:
                record(args, kwargs, None, type(error).__name__)
                raise
            record(args, kwargs, result, None)
            return result

        return cast(FunctionT, asynchronous)

    @functools.wraps(function)
    def synchronous(*args: Any, **kwargs: Any) -> Any:
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            record(args, kwargs, None, type(error).__name__)
            raise
        record(args, kwargs, result, None)
        return result

    return cast(FunctionT, synchronous)
