"""Which topics can be values of the partition column `topic`, and which cannot.

Spark names the folder of a partition by the escaped value, and Delta reads the value back from that name. So some of the broker's topics
cannot be partitions: names above a file system's limit of 255 bytes, letters that the JVM's locale does not have, and Hive's name for NULL.
"""

from __future__ import annotations

import re

# the characters that TopicValidator allows, and the dot of system topics; Spark escapes only the percent sign of them, as %25
_PLAIN = re.compile(r"[A-Za-z0-9_.%|-]+")
_LONGEST_FOLDER = 255 - len("topic=")
# Spark's ExternalCatalogUtils.DEFAULT_PARTITION_NAME, which is read as NULL
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


def can_name_a_folder(topic: str) -> bool:
    """Whether a topic can be the name of a folder on any file system, under any locale."""
    return bool(_PLAIN.fullmatch(topic)) and len(topic) + 2 * topic.count("%") <= _LONGEST_FOLDER
