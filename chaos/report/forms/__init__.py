"""The forms of a report, each under its name: html, md, junit, svg, png, perfetto, otel, prometheus, json, model."""
