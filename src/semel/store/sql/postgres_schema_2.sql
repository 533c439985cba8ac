-- semel on PostgreSQL, from schema version 1 to 2: the database itself keeps the roles of tenants apart.
-- The owner of these tables, superusers and roles with BYPASSRLS work for all tenants: no policy is asked for them. A role
-- that stands in tenant_role sees and writes the rows of its tenant alone; any other role sees nothing.
CREATE TABLE semel.tenant_role (
    role name PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL
);

ALTER TABLE semel.tenant_role ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON semel.tenant_role FOR SELECT USING (role = current_user);

-- Its body is parsed here and now: no search_path of the asking role can give the names in it another meaning.
CREATE FUNCTION semel.my_tenant() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
RETURN (SELECT r.tenant FROM semel.tenant_role r WHERE r.role = current_user);

-- Asked once for each statement, as a subquery, so that it is a value and the keys' indexes are used.
ALTER TABLE semel.journal ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON semel.journal USING (tenant = (SELECT semel.my_tenant()));
CREATE POLICY of_the_store ON semel.journal FOR SELECT USING (tenant = '');  -- its epochs: what they put in doubt is everybody's
ALTER TABLE semel.task ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON semel.task USING (tenant = (SELECT semel.my_tenant()));
ALTER TABLE semel.task_key ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON semel.task_key USING (tenant = (SELECT semel.my_tenant()));
ALTER TABLE semel.ready ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON semel.ready USING (tenant = (SELECT semel.my_tenant()));
ALTER TABLE semel.inflight ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON semel.inflight USING (tenant = (SELECT semel.my_tenant()));
ALTER TABLE semel.effect ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON semel.effect USING (tenant = (SELECT semel.my_tenant()));
ALTER TABLE semel.unknown ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON semel.unknown USING (tenant = (SELECT semel.my_tenant()));

-- A session belongs to the tenant of the role that opened it; '' works for all tenants. A forged fence would let settle
-- pass while the sender can still act (R4), so a role changes the sessions of its own tenant alone. It must see those that
-- work for all: a holder that it could not see would count as missing, and its task would be taken from it while it runs.
ALTER TABLE semel.session ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE semel.session ALTER COLUMN tenant SET DEFAULT coalesce(semel.my_tenant(), '');
ALTER TABLE semel.session ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON semel.session USING (tenant = (SELECT semel.my_tenant()));
CREATE POLICY works_for_all ON semel.session FOR SELECT USING (tenant = '');
ALTER TABLE semel.living ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE semel.living ALTER COLUMN tenant SET DEFAULT coalesce(semel.my_tenant(), '');
ALTER TABLE semel.living ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON semel.living USING (tenant = (SELECT semel.my_tenant()));
CREATE POLICY works_for_all ON semel.living FOR SELECT USING (tenant = '');

-- What a tenant's role may do. UPDATE on ready and living: without it their rows cannot be locked.
CREATE FUNCTION semel.let_in(role name, tenant text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    INSERT INTO semel.tenant_role VALUES (let_in.role, let_in.tenant) ON CONFLICT DO NOTHING;
    IF (SELECT r.tenant FROM semel.tenant_role r WHERE r.role = let_in.role) <> let_in.tenant THEN
        RAISE EXCEPTION 'role % is of another tenant already', let_in.role USING ERRCODE = 'unique_violation';
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA semel TO %I', let_in.role);
    EXECUTE format('GRANT SELECT ON semel.meta, semel.tenant_role TO %I', let_in.role);
    EXECUTE format('GRANT SELECT, INSERT ON semel.journal, semel.task_key TO %I', let_in.role);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE ON semel.task, semel.effect TO %I', let_in.role);
    EXECUTE format('GRANT SELECT, INSERT, DELETE ON semel.ready, semel.inflight, semel.unknown, semel.living TO %I', let_in.role);
    EXECUTE format('GRANT SELECT, INSERT, DELETE ON semel.unconfirmed TO %I', let_in.role);  -- of no tenant: never committed
    EXECUTE format('GRANT UPDATE (task) ON semel.ready TO %I', let_in.role);
    EXECUTE format('GRANT UPDATE (id) ON semel.living TO %I', let_in.role);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE (beat, nonce, fenced) ON semel.session TO %I', let_in.role);
END $$;

REVOKE EXECUTE ON FUNCTION semel.let_in(name, text) FROM PUBLIC;
