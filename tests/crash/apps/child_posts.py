"""`child_posts.py KEY REF`: the child of an effect. It acts after a while, whoever may have died meanwhile."""

import sys
import time

from wire import PROVIDER, note

from semel.testing.provider import post

if __name__ == "__main__":
    note("child")
    time.sleep(1.5)
    print(post(f"{PROVIDER}/looked/browse", {"marker": sys.argv[1], "ref": sys.argv[2]}, key=sys.argv[1])["id"])
