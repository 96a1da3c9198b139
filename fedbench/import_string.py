"""Classes and functions of the user, named on the command line as package.module:name."""

from importlib import import_module

from fedbench.errors import ConfigError, nearest, place_of


def import_string(path: str, what: str) -> object:
    """What `package.module:name` names. Raises ConfigError; `what` says in it what was asked for."""
    module, _, attribute = path.partition(":")
    try:
        found: object = import_module(module)
    except ImportError as error:
        raise ConfigError(f"{what} '{path}': module {module} cannot be imported ({error})") from error
    except Exception as error:
        why = f"{type(error).__name__}: {error}"  # a SyntaxError names its line itself
        why += "" if isinstance(error, SyntaxError) else f", {place_of(error)}"
        raise ConfigError(f"{what} '{path}': importing {module} failed ({why})") from error
    if module == "__main__" and not hasattr(found, attribute):
        raise ConfigError(
            f"{what} '{path}': only the process that defines {attribute} knows it: write it into a file, or stay in "
            "that process, with resources.hosts = 0 and, in a grid or a comparison, at_once=1"
        )
    if not hasattr(found, attribute):
        names = [n for n in vars(found) if not n.startswith("_")]
        raise ConfigError(
            f"{what} '{path}': module {module} has no {attribute or 'empty name'}; {nearest(attribute, names)}"
        )
    return getattr(found, attribute)
