"""`run_locker.py FILE SECONDS`: another program that holds the store's write lock for a while."""

import sys
import time

import apsw

if __name__ == "__main__":
    connection = apsw.Connection(sys.argv[1])
    connection.set_busy_timeout(20000)
    connection.execute("BEGIN IMMEDIATE")
    print("locked", flush=True)
    time.sleep(float(sys.argv[2]))
    connection.execute("ROLLBACK")
    connection.close()
