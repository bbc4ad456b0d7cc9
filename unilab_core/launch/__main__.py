"""`python -m unilab_core.launch`: the background half of --detach is started this way."""

from unilab_core.launch.cli import main

if __name__ == "__main__":
    main()
