"""Topics as values of the partition column `topic`.

Spark names the folder of a partition by the escaped value and Delta reads the value back from that name. So a file system's limit of 255
bytes, a JVM whose locale has no such letters, and Hive's name for a missing value all stand in the way of a topic that the broker took.
"""

from __future__ import annotations

import re

# what TopicValidator lets pass, and the dot of system topics; of these Spark escapes the percent sign only, as %25
_PLAIN = re.compile(r"[A-Za-z0-9_.%|-]+")
_LONGEST_FOLDER = 255 - len("topic=")
# Spark's ExternalCatalogUtils.DEFAULT_PARTITION_NAME: read back as NULL
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


def can_name_a_folder(topic: str) -> bool:
    """Whether a folder can be named by the topic on any file system, under any locale."""
    return bool(_PLAIN.fullmatch(topic)) and len(topic) + 2 * topic.count("%") <= _LONGEST_FOLDER
