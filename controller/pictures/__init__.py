"""Pictures of plans and models as SVG, PNG or PDF, by the file's suffix.

matplotlib is an extra (`headgate[plot]`) and is imported when a picture is drawn. `format_of` tells
beforehand whether a picture can be written, so that a command fails before it computes.
"""

from headgate.controller.pictures.drawing import format_of
from headgate.controller.pictures.model_pictures import model_pairs_picture, model_picture
from headgate.controller.pictures.plan_picture import plan_picture
from headgate.controller.pictures.rate_pictures import comparison_picture, whatif_picture

__all__ = [
    "comparison_picture",
    "format_of",
    "model_pairs_picture",
    "model_picture",
    "plan_picture",
    "whatif_picture",
]
