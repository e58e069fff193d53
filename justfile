# What one types while working on agentcli. `just --list` shows this; the recipes are short enough to type by hand.

python := ".venv/bin/python"

# make .venv with everything the tests need
install:
    scripts/install.sh .venv alfworld,test

# linter, format and types: seconds
check:
    .ci/check

# mend what the linter and the formatter can mend
format:
    .venv/bin/ruff check --fix .
    .venv/bin/ruff format .

# the tests of one folder or file: just test tests/credit
test *WHERE:
    {{python}} -m pytest -n 2 --dist loadfile {{WHERE}}

# what must pass before a change is merged
ci:
    .ci/run

# the documentation as a site in site/; a broken link is an error
site:
    .venv/bin/mkdocs build --strict

# the figures of the house, or of several checkouts side by side: just house --tree ../before --tree .
house *TREES:
    {{python}} scripts/measure_house.py {{TREES}}

# the whole story on a CPU: demonstrations, a tiny policy, reinforcement learning, a table
quickstart:
    scripts/quickstart.sh
