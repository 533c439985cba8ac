-- semel on SQLite, from schema version 1 to 2: pruning is the one exception (R22). What stands before a stream's last
-- tombstone may be taken away.
DROP TRIGGER journal_is_never_deleted;

CREATE TRIGGER journal_is_never_deleted BEFORE DELETE ON journal
WHEN OLD.seq >= coalesce((SELECT j.seq FROM journal j WHERE j.tenant = OLD.tenant AND j.stream = OLD.stream AND j.kind = 'pruned'
                          ORDER BY j.seq DESC LIMIT 1), 0)
BEGIN SELECT RAISE(ABORT, 'the journal is insert only'); END;
