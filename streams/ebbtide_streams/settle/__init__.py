"""The settle stage: when and to what a trajectory settles is decided in governance, here it is done."""

from ebbtide_streams.settle.stage import SettleStage

__all__ = ["SettleStage"]
