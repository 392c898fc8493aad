"""The error for a frame that the broker's decoder refuses.

Broker source (4.9.3): the exceptions of RemotingCommand.decode, RocketMQSerializable and netty's LengthFieldBasedFrameDecoder.
Surprise: for a header that ends too early the broker throws no RemotingCommandException, but the exception of the Java library.
"""

from __future__ import annotations

from functools import partial

from store_format.errors import StoreError


class FrameError(StoreError):
    """A frame for which the broker's decoder throws `exception`, the simple name of a Java class.

    The position is a byte offset from the start of the frame, its length field included.
    """

    def __init__(self, exception: str, expected: str, found: str, *, position: int, path: str = "frame") -> None:
        super().__init__(path, expected, found, position=position)
        self.exception = exception
        self.offset = position

    def moved(self, by: int) -> FrameError:
        """The same error with `by` added to its position: for a start that is `by` bytes earlier."""
        return FrameError(self.exception, self.expected, self.found, position=self.offset + by, path=self.path)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle all attributes, so that the error passes from a Spark worker to the driver."""
        return partial(FrameError, self.exception, self.expected, self.found, position=self.offset, path=self.path), ()


JSON_EXCEPTION = "JSONException"
BUFFER_UNDERFLOW = "BufferUnderflowException"
NULL_POINTER = "NullPointerException"
NEGATIVE_ARRAY_SIZE = "NegativeArraySizeException"
REMOTING_COMMAND_EXCEPTION = "RemotingCommandException"
TOO_LONG_FRAME = "TooLongFrameException"
# an Error of Java, not an Exception: the broker's decoder does not catch it
OUT_OF_MEMORY = "OutOfMemoryError"
