-- semel on PostgreSQL, from schema version 2 to 3: pruning is the one exception (R22). What stands before a stream's last
-- tombstone may be taken away, by a role that may DELETE: the owner's; none of a tenant's has that.
CREATE OR REPLACE FUNCTION semel.the_journal_is_insert_only() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN
    IF TG_OP = 'DELETE' THEN
        IF OLD.seq < (SELECT j.seq FROM semel.journal j WHERE j.tenant = OLD.tenant AND j.stream = OLD.stream AND j.kind = 'pruned'
                      ORDER BY j.tenant DESC, j.stream DESC, j.seq DESC LIMIT 1) THEN
            RETURN OLD;
        END IF;
    END IF;
    RAISE EXCEPTION 'the journal is insert only' USING ERRCODE = 'integrity_constraint_violation';
END $$;
