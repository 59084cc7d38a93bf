"""Docstrings as they are written here, made into what Sphinx reads; and where public names are documented."""

import re

SECTION = re.compile(r"^(Parameters|Returns|Raises|Notes|Examples)$")
ENTRY = re.compile(r"^(\w+(?:, \w+)*) : (.*)$")
PAGE = re.compile(r"\bdocs/([a-z-]+)\.md\b")


def as_restructured_text(line):
    """Stars and bars mean themselves, except in code; pages become links."""
    parts = line.split("`")
    parts[::2] = [re.sub(r"([*|])", r"\\\1", part) for part in parts[::2]]
    return PAGE.sub(r":doc:`/\1`", "`".join(parts))


def rewrite(app, what, name, obj, options, lines):
    """`name : text` becomes a field of the parameters, or outside of that section an entry of a list."""
    made, section, in_entry, in_example = [], None, False, False
    for line in lines:
        in_example = bool(line) and (in_example or line.startswith(">>>"))
        line = line if in_example else as_restructured_text(line)
        heading, entry = SECTION.match(line), ENTRY.match(line)
        if heading:
            section = heading[1]
            made += [] if section == "Parameters" else [f".. rubric:: {section}"]
        elif section and line and set(line) == {"-"}:
            made.append("")
        elif entry and section == "Parameters":
            made += [f":param {each}: {entry[2]}" for each in entry[1].split(", ")]
        elif entry:
            made += [*([] if in_entry else [""]), f"* ``{entry[1]}``: {entry[2]}"]
        elif in_entry and line.startswith(" "):
            made.append("  " + line.strip())
        else:
            made += ["", line] if in_entry else [line]
        in_entry = bool(entry) or (in_entry and line.startswith(" "))
    lines[:] = [*made, ""]


def shorten(app, what, name, obj, options, signature, returns):
    """Long names of other packages, and what numpy's NDArray stands for, are of no use to a reader."""

    def short(text):
        text = re.sub(r"~(?!sointer)(?:\w+\.)+", "", text)
        text = re.sub(r"ndarray\[tuple\[Any, \.\.\.\], dtype\[(\w+)\]\]", r"NDArray[\1]", text)
        return re.sub(r"<function (\w+)>", r"\1", text)

    return signature and short(signature), returns and short(returns)


def skip_inherited(app, what, name, obj, skip, options):
    """scikit-learn documents what an estimator has from it."""
    return True if str(getattr(obj, "__module__", "")).startswith("sklearn.") else None


def find_public_name(app, env, node, contnode):
    """Annotations name a class where it is defined; the reference has it where it is imported from."""
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py" or not target.startswith("sointer."):
        return None
    domain, last = env.get_domain("py"), target.rpartition(".")[2]
    for name, entry in domain.objects.items():
        if entry.objtype in ("class", "function", "exception") and name.rpartition(".")[2] == last:
            return domain.resolve_xref(env, node["refdoc"], app.builder, node["reftype"], name, node, contnode)
    return None


def setup(app):
    app.connect("autodoc-process-docstring", rewrite)
    app.connect("autodoc-process-signature", shorten)
    app.connect("autodoc-skip-member", skip_inherited)
    app.connect("missing-reference", find_public_name)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
