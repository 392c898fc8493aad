"""Work that is divided among tasks of Spark, or that the driver does itself if it is small."""
