"""Pictures of plans and models as SVG, PNG or PDF, by the file's suffix.

matplotlib is an extra (`headgate[plot]`) and is imported when a picture is drawn. `format_of` tells
beforehand whether a picture can be written, so that a command fails before it computes.
"""
