"""The live view: model.py computes, view.py writes it as text, app.py shows it. Only app.py needs Textual."""
