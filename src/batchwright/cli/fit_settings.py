"""What `batchwright fit` was asked for, whatever the file holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The command's own flags; None: not given."""

    output: Path | None
    name: str | None
    run: str | None
    attention: bool
    force: bool
    as_json: bool

    def name_of(self, paths: list[Path]) -> str:
        """What the profile is called: as its file, or the first one measured."""
        return self.name or (paths[0] if self.output is None else self.output).name.split(".")[0]

    def end(self, cost: str) -> list[str]:
        """How the fit is used."""
        said = [f"--cost {cost!r}" if "'" not in cost else f'--cost "{cost}"']
        if self.output is None:
            return said
        return [*said, f"{self.output}: written; compare LOAD --profile {self.output} uses it"]
