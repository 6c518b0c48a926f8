"""The first sketch of the decode clock: no prefix cache, no log.  What speed is measured against."""
