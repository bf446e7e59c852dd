"""Writes docs/python-api.md from the package's sources: what users may call, with its docstrings.

Sources are parsed, not imported, so no framework has to be installed and all modules are on the
page. ``--check`` compares the page with the sources instead of writing it.
"""

from __future__ import annotations

import argparse
import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "python-api.md"
# In the order of the page; those whose names are those of another package are described by it.
MODULES = (
    "sirtaki",
    "sirtaki.torch",
    "sirtaki.torch.elastic",
    "sirtaki.tensorflow",
    "sirtaki.keras",
    "sirtaki.keras.callbacks",
    "sirtaki.lightning",
    "sirtaki.transformers",
    "sirtaki.jax",
    "sirtaki.numpy",
    "sirtaki.data",
    "sirtaki.data.tensorflow",
    "sirtaki.data.keras",
    "sirtaki.optuna",
    "sirtaki.hyperopt",
)
HEAD = """# Python API

Written by `cargo xtask docs` from the package's sources; change it there. Names that begin with
an underscore are not for programs. `hvd` stands for the module of your framework, as in `import
sirtaki.torch as hvd`.
"""


class Module:
    """A source file, parsed."""

    def __init__(self, name: str) -> None:
        """Reads the module of this name."""
        self.name = name
        folder = ROOT / "python" / Path(*name.split("."))
        package = folder / "__init__.py"
        path = package if package.exists() else folder.with_suffix(".py")
        self.tree = ast.parse(path.read_text(encoding="utf-8"), str(path))

    def names(self) -> list[str]:
        """What the module is for: `__all__`, or everything defined here without an underscore."""
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                return list(ast.literal_eval(node.value))
        kinds = (ast.FunctionDef, ast.ClassDef)
        defined = [node.name for node in self.tree.body if isinstance(node, kinds)]
        return sorted(name for name in defined if not name.startswith("_"))

    def find(self, name: str) -> ast.AST | str | None:
        """The definition of a name, wherever it is; a text for a module."""
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
                return node
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        return follow(node.module, alias.name)
        for node in self.tree.body:
            found = assigned(node, name)
            if isinstance(found, ast.Name):
                return self.find(found.id)
            if found is not None:
                return node
        return None


def assigned(node: ast.AST, name: str) -> ast.AST | None:
    """The value that a statement gives to a name; several may be given at once."""
    if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name:
        return node.value or node
    if not isinstance(node, ast.Assign):
        return None
    target, value = node.targets[0], node.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = zip(target.elts, value.elts)
        return next((value for target, value in pairs if ast.unparse(target) == name), None)
    return value if ast.unparse(target) == name else None


def follow(module: str, name: str) -> ast.AST | str | None:
    """The definition that an import leads to."""
    if not module.startswith("sirtaki"):
        return f"of `{module}`"
    folder = ROOT / "python" / Path(*module.split("."))
    if (folder / name).is_dir() or (folder / f"{name}.py").exists():
        return ast.get_docstring(Module(f"{module}.{name}").tree) or ""
    return Module(module).find(name)


def signature(node: ast.FunctionDef, method: bool = False) -> str:
    """The arguments with their defaults; annotations are left to the package's own files."""
    arguments = node.args
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        argument.annotation = None
    for argument in (arguments.vararg, arguments.kwarg):
        if argument is not None:
            argument.annotation = None
    text = ast.unparse(arguments)
    return text.removeprefix("self").removeprefix("cls").removeprefix(", ") if method else text


def first_paragraph(text: str | None) -> str:
    """What a docstring says before examples and details, in one line."""
    lines = (text or "").strip().split("\n\n")[0].split(">>>")[0]
    return " ".join(lines.split()).replace("``", "`").replace("|", "\\|")


def described(name: str, node: ast.AST | str | None) -> str:
    """One line of the page, and one for each method of a class."""
    if isinstance(node, str):
        return f"- **`{name}`**: {first_paragraph(node)}"
    if isinstance(node, ast.FunctionDef):
        said = first_paragraph(ast.get_docstring(node))
        return f"- **`{name}({signature(node)})`** {said}".rstrip()
    if isinstance(node, ast.ClassDef):
        return of_class(name, node)
    return f"- **`{name}`**"


def of_class(name: str, node: ast.ClassDef) -> str:
    """A class with its constructor and its methods."""
    methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
    made = next((method for method in methods if method.name == "__init__"), None)
    call = f"({signature(made, method=True)})" if made else ""
    lines = [f"- **`{name}{call}`** {first_paragraph(ast.get_docstring(node))}".rstrip()]
    for method in methods:
        if method.name.startswith("_"):
            continue
        decorators = [ast.unparse(decorator) for decorator in method.decorator_list]
        if any(decorator.endswith(".setter") for decorator in decorators):
            continue
        call = "" if "property" in decorators else f"({signature(method, method=True)})"
        said = first_paragraph(ast.get_docstring(method))
        lines.append(f"  - `{method.name}{call}` {said}".rstrip())
    return "\n".join(lines)


def section(name: str) -> str:
    """A module: what it is for, and its names."""
    module = Module(name)
    entries = [described(entry, module.find(entry)) for entry in module.names()]
    about = first_paragraph(ast.get_docstring(module.tree))
    return f"## `{name}`\n\n{about}\n\n" + "\n".join(entries) + "\n"


def main() -> int:
    """Writes or checks the page; the exit code is 1 if it is old."""
    parser = argparse.ArgumentParser(description="Writes docs/python-api.md.")
    parser.add_argument("--check", action="store_true", help="only compare")
    check = parser.parse_args().check
    page = HEAD + "\n" + "\n".join(section(module) for module in MODULES)
    if not check:
        PAGE.write_text(page, encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page:
        return 0
    sys.stderr.write("docs/python-api.md is old\nhint: write it with `cargo xtask docs`\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
