"""`child_posts.py KEY REF`: the child of an effect. It acts when its gate is opened, whoever may have died meanwhile."""

import sys

from wire import PROVIDER, gate, note

from semel.testing.provider import post

if __name__ == "__main__":
    note("child")
    gate("child")
    print(post(f"{PROVIDER}/looked/browse", {"marker": sys.argv[1], "ref": sys.argv[2]}, key=sys.argv[1])["id"])
