"""The guards: what is taken out, and whose tests must notice. `old` stands exactly once in the file."""

from __future__ import annotations

from dataclasses import dataclass

EFFECTS = ("tests/machine/test_rules_effects.py",)
TASKS = ("tests/machine/test_rules_tasks.py",)
RECOVERY = ("tests/machine/test_recovery.py",)
JOURNAL = ("tests/machine/test_journal.py",)
KEYS = ("tests/machine/test_keys.py",)
SESSION = ("tests/engine/test_session.py",)
PERFORM = ("tests/engine/test_perform.py",)
ACTING = ("tests/engine/test_acting.py",)
STORE = ("tests/conformance/test_sqlite_store.py",)
WRITER = ("tests/store/test_writer.py",)
TIMER = ("tests/watchdog/test_watchdog_timer.py",)
IDENTITY = ("tests/watchdog/test_watchdog_identity.py",)
BAD = ("tests/app/test_bad_input.py",)
TASK_CELLS = ("tests/machine/test_cells_tasks.py",)
START = ("tests/app/test_worker_start.py",)
WAITS = ("tests/waiting/test_waiting.py",)
TENANTS = ("tests/app/test_tenants.py",)
ROLES = "tests/postgres/test_postgres_tenants.py"
AWAY = ("tests/crash/test_crash_server.py::test_idle_workers_outlive_a_server_that_is_stopped_for_longer_than_their_lease",)
STOP = ("tests/crash/test_crash_server.py::test_told_to_stop_while_the_server_is_away",)
RACES, PLANS = "tests/postgres/test_postgres_races.py::", "tests/postgres/test_postgres_plans.py"
CELLS = ("tests/machine/test_cells_effects.py",)
ATOMIC, BORROWED = "tests/postgres/test_postgres_atomic.py::test_", "tests/postgres/test_postgres_borrowed.py::test_"
ARRIVAL = ("tests/restore/test_restore_arrival.py",)
EPOCHS = ("tests/machine/test_cells_epochs.py",)
DOUBT = ("tests/restore/test_restore_doubt.py",)
MIDDLE = ("tests/restore/test_restore_middle.py",)
LIVING = "tests/restore/test_restore_living.py::"


@dataclass(frozen=True)
class Guard:
    """One guard: its rule and what it does; the edit that removes it; the tests of which one must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def slow(self) -> bool:
        """Whether its tests need a server or real worker processes: then `make sabotage` removes it, and `make test` does not."""
        return any(test.split("/")[1] in ("crash", "postgres", "restore", "acceptance") for test in self.tests)


GUARDS = (
    # --- machine/effects ---
    Guard("R1 a disproof closes only its own submission", "machine/effects.py",
          "effect = _sub(effect, event.n, open=False, ended=True)",
          "effect = _sub(effect, event.n, close_all=True, ended=True)", EFFECTS),
    Guard("R1 the age restarts only when clean", "machine/effects.py",
          "clean_since=since if clean else effect.clean_since", "clean_since=since", EFFECTS),
    Guard("R1 an earlier unknown counts while a further try is in flight", "machine/effects.py",
          "return any(s.lost for s in self.open)", "return self.state is EffectState.AMBIGUOUS", TASKS),
    Guard("R2 a late outcome never overwrites", "machine/effects.py",
          "if sub.open and not effect.confirmed and standing.current and not sub.fenced:",
          "if sub.open and not effect.confirmed:", EFFECTS),
    Guard("R2 evidence is read before a not_found is believed", "machine/effects.py",
          "    if c.seen and len(effect.sent) > c.seen:\n        return _no(Code.STALE_VIEW, f\"{effect.name} was submitted again "
          "since it was looked for\")\n    if effect.told is not None:",
          "    if c.seen and len(effect.sent) > c.seen:\n        return _no(Code.STALE_VIEW, f\"{effect.name} was submitted again "
          "since it was looked for\")\n    if False:", EFFECTS),
    Guard("R3 precedence: a stale token is told first", "machine/effects.py",
          "    if not standing.current:\n        return _no(Code.STALE_TOKEN, f\"attempt {c.attempt} no longer owns the task\")\n"
          "    if standing.suspended:", "    if standing.suspended:", EFFECTS),
    Guard("R4 not_found waits for every sender to be quiet", "machine/effects.py",
          "if not effect.quiet and not (answered is not None and answered.stopped):", "if False:", EFFECTS),
    Guard("R4 not_found waits for settle", "machine/effects.py", "if c.waited_ms < c.settle_ms:", "if False:", EFFECTS),
    Guard("R4 a fence quiets nothing that is unfenced", "machine/effects.py",
          'return self.unfenced != "child" and (self.dead or (self.fenced and not self.unfenced))',
          "return self.dead or self.fenced", EFFECTS),
    Guard("R4 a person must say that an unfenced sender has stopped", "machine/effects.py",
          "if any(s.unfenced and not s.quiet for s in effect.open) and not c.stopped:", "if False:", EFFECTS),
    Guard("R4 a not_found says nothing of a later submission", "machine/effects.py",
          "if c.seen and len(effect.sent) > c.seen:", "if False:", EFFECTS),
    Guard("R9 a second wording in one attempt", "machine/effects.py", "if c.said is not None or standing.clean:",
          "if standing.clean:", TASKS),
    Guard("R9 another wording after a clean end", "machine/effects.py", "if c.said is not None or standing.clean:",
          "if c.said is not None:", TASKS),
    Guard("R9 a material argument may not change", "machine/effects.py", "if c.material != effect.material:", "if False:", TASKS),
    Guard("R9 what is confirmed is not submitted again", "machine/effects.py", "if state is EffectState.CONFIRMED:", "if False:", TASKS),
    Guard("R9 what is in flight is not submitted again", "machine/effects.py", "if state is EffectState.SUBMITTED:\n        return "
          "_no(Code.IN_FLIGHT, f\"{effect.name} is in flight\")\n    if c.again:", "if c.again:", TASKS),
    Guard("R11 a suspended attempt starts nothing", "machine/effects.py", "if standing.suspended:", "if False:", TASKS),
    Guard("R21 a decision on what has moved on", "machine/effects.py",
          "if effect.version != c.seen or effect.state is not EffectState.AMBIGUOUS:",
          "if effect.state is not EffectState.AMBIGUOUS:", EFFECTS),
    Guard("invariant: nothing starts while something is unknown", "machine/effects.py", "if standing.unknown:", "if False:", TASKS),
    Guard("limits: effects per task", "machine/effects.py", "if c.limit is not None and standing.used >= c.limit:", "if False:", TASKS),
    # --- machine/tasks ---
    Guard("R2 every end of an attempt loses its submissions", "machine/tasks.py",
          "            if not s.lost:\n                lost.append(j.Lost(key, s.n, why, fenced=fenced, dead=dead))\n"
          "            elif fenced and s.session",
          "            if fenced and s.session", TASKS),
    Guard("R8 an unknown joined key counts", "machine/tasks.py",
          "return sorted(task.unknown) + [key for key in joined if (effect := shared[key].effect) and effect.unknown]",
          "return sorted(task.unknown)", TASKS),
    Guard("R8 an outcome is its own sender's", "machine/effects.py",
          "if sub is None or sub.token != c.token or c.sender not in (None, (sub.task, sub.attempt)):",
          "if sub is None or sub.token != c.token:", ("tests/machine/test_cells_effects.py",)),
    Guard("R8 a key's token rises with each intent", "machine/tasks.py",
          "counter = (key.token & ((1 << EPOCH_SHIFT) - 1)) + 1", "counter = max(1, key.token & ((1 << EPOCH_SHIFT) - 1))", TASKS),
    Guard("tokens rise with each claim", "machine/tasks.py",
          "counter = (task.token & ((1 << EPOCH_SHIFT) - 1)) + 1", "counter = max(1, task.token & ((1 << EPOCH_SHIFT) - 1))", TASKS),
    Guard("tokens never fall back to an older epoch", "machine/tasks.py",
          "epoch = max(c.epoch, task.token >> EPOCH_SHIFT)", "epoch = c.epoch", TASKS),
    Guard("a finished task has no open effect", "machine/tasks.py",
          "    if _in_flight(task, shared):\n        return _no(Code.IN_FLIGHT", "    if False:\n        return _no(Code.IN_FLIGHT", TASKS),
    Guard("only the owner ends an attempt", "machine/tasks.py",
          "if isinstance(command, _OWNERS) and not task.owned(command.token):", "if False:",
          ("tests/machine/test_cells_tasks.py",)),
    Guard("a poison task runs alone before it is given up", "machine/tasks.py",
          "if crashes < task.max_crashes or not task.alone:", "if crashes < task.max_crashes:", TASKS),
    Guard("what must end with an unknown is reconciled first", "machine/tasks.py",
          'last: j.Happened = j.Ending("dead_lettered", why, c.at) if unknown else j.DeadLettered(why)',
          "last: j.Happened = j.DeadLettered(why)", TASKS),
    # --- machine: the ladder, the journal, keys ---
    Guard("R2 the ladder reads evidence first", "machine/recovery.py",
          "if any(found.n == sent.n and found.outcome != RAISED for found in effect.evidence):", "if False:", RECOVERY),
    Guard("R13 a resend stays inside the retention", "machine/recovery.py",
          "return max(0, rung.within_ms - margin - age", "return max(0, rung.within_ms", RECOVERY),
    Guard("R13 the age is the greater of the clocks'", "machine/recovery.py",
          "age = max(facts.now_ms, facts.highest_ms) - effect.clean_since", "age = facts.now_ms - effect.clean_since", RECOVERY),
    Guard("the chain covers every column", "machine/journal.py", "str(token), str(at), id, body)", "str(at), id, body)", JOURNAL),
    Guard("the chain holds the row before", "machine/journal.py", "hasher = hashlib.sha256(previous)", "hasher = hashlib.sha256()", JOURNAL),
    Guard("no float identifies an effect", "machine/keys.py", "if isinstance(value, float):", "if False:", KEYS),
    # --- the store ---
    Guard("R5 a change lands on the version and hash it was decided on", "store/batch.py",
          "if self._head(p.tenant, p.stream) != p.expect", "if False", STORE),
    Guard("R5 claims and intents land only unfenced", "store/batch.py", "if session.fenced or not session.living:", "if False:", STORE),
    Guard("R8 joined keys must stand where they stood", "store/batch.py", "if behind is not None:", "if False:", STORE),
    Guard("R7 a change that landed is not written twice", "store/batch.py",
          "return Landed() if self._has_landed(change) else Stale(stale)", "return Stale(stale)", STORE),
    Guard("the journal cannot be deleted from", "store/sql/sqlite_schema.sql", "BEFORE DELETE ON journal", "BEFORE DELETE ON journal WHEN 0", ("tests/store/test_sqlite_tampering.py",)),
    Guard("R15 a file put in the place of ours is another store", "store/sqlite.py",
          "return beaten and self.still_here()", "return beaten", ("tests/store/test_sqlite_place.py",)),
    Guard("nobody else opens the file in this process", "store/guardfile.py", "raise Misuse(", "print(", BAD),
    Guard("R6 an outcome rides with the next intent", "store/writer.py",
          "while not self._closing and not self._waited_for and len(self._queue) < MOST:", "while not self._closing and not self._queue:", WRITER),
    # --- engine ---
    Guard("R6 the intent is durable before the call", "engine/ledger.py", "outcome = yield Await(proposed.ticket)", "outcome = Landed()", PERFORM),
    Guard("R5 anything that is not proof is a loss", "engine/perform.py",
          "    return e.Lose(key, n, token, describe(error), True, sender), Unknown()",
          "    return e.Disprove(key, n, token, describe(error), sender=sender), Clean(error, False)", PERFORM),
    Guard("R4 a timeout does not end the code", "engine/perform.py",
          'f"no answer within {doing.seconds:g} s", False, doing.sender))', 'f"no answer within {doing.seconds:g} s", True, doing.sender))', ACTING),
    Guard("R4 what the code left behind may act", "engine/perform.py",
          "if isinstance(command, e.Lose) and not acting.quiet:", "if False:", ACTING),
    Guard("R4 settle is over before the provider is asked", "engine/recover.py",
          "    verdict, mistake = yield from ask(attempt, effect, looked, known, values)",
          "    verdict, mistake = yield from ask(attempt, effect, looked, known, values)\n    waited = attempt.facts(known).waited_ms", ACTING),
    Guard("R4 settle counts from when this process learnt", "engine/session.py",
          "return int((now - known[1]) * 1000)", "return 10**9", SESSION),
    Guard("R9 in flight in this attempt: joined", "engine/attempt.py", "there = self._flights.get(key)", "there = None", PERFORM),
    Guard("R11 a swallowed suspension ends the attempt all the same", "engine/attempt.py",
          "        if self.exit is not None:\n            yield from self._take_exit", "        if False:\n            yield from self._take_exit", PERFORM),
    Guard("R11 a cancelled handler does not cancel a call", "decorated.py", "return await asyncio.shield(task)", "return await task", PERFORM),
    Guard("R14 the whole TTL is watched", "engine/session.py", "if seen.still_seconds >= min(row.ttl_ms, longest) / 1000:",
          "if seen.still_seconds >= min(row.ttl_ms, longest) / 4000:", SESSION),
    Guard("R14 a gap is not watching", "engine/session.py", "gap if gap <= self.ttl / 2 else 0.0", "gap", SESSION),
    Guard("R14 proof of death needs the same boot", "watchdog.py", "keys = [(i.boot_id, i.pid_ns,", "keys = [(i.pid_ns,", IDENTITY),
    Guard("R15 the deadline counts from the sending", "engine/session.py",
          "        self.number += 1\n        self._nonces = [nonce]\n        self._acknowledged(sent)",
          "        self.number += 1\n        self._nonces = [nonce]\n        self._acknowledged(self.desk.clock.boot())", SESSION),
    Guard("R15 any nonce sent since is accepted", "engine/session.py", "self._nonces.append(nonce)", "pass", SESSION),
    Guard("R15 a refused beat fences", "engine/session.py", "if not still_ours:", "if False:", SESSION),
    Guard("R4 overdue code stops the beats", "engine/session.py", "if self._overdue() > self.ttl:", "if False:", SESSION),
    Guard("R16 the kernel timer is armed", "watchdog.py", "                self._arm()\n            self.running += 1", "                pass\n            self.running += 1", TIMER),
    Guard("R16 after arming the deadline is checked", "engine/perform.py",
          'if not (doing.move("waiting", "calling") and attempt.session.alive() and runtime.watchdog_allows()):',
          'if not doing.move("waiting", "calling"):', PERFORM),
    Guard("R17 what is ours and unknown goes back", "engine/session.py", "for tenant, task in unknown & self.strange:", "for tenant, task in ():", SESSION),
    Guard("R17 what is held stays", "engine/session.py", "for row in self.desk.store.held(self.id)} - self.held", "for row in self.desk.store.held(self.id)}", SESSION),
    # --- tenants ---
    Guard("tenants: a bound app reaches no other", "app.py", "if self.bound_to not in (None, tenant):", "if False:", TENANTS),
    Guard("tenants: a bound app lists its own alone", "verbs.py", "return self._app.tenant if tenant is None else", "return None if tenant is None else", TENANTS),
    Guard("tenants: a bound worker claims its own alone", "engine/queue.py", "tuple(kinds), tenant=desk.tenant)", "tuple(kinds))", TENANTS),
    Guard("tenants: a bound worker takes back its own alone", "engine/session.py", "orphans(after, PAGE, self.desk.tenant)", "orphans(after, PAGE)", TENANTS),
    Guard("tenants: one's nonsense stops no other's settle", "engine/session.py", "Exception:  # one tenant's nonsense must not keep the others' settle", "KeyError:  # one tenant's", TENANTS),
    Guard("tenants: a claim in a file is of one", "store/sql/sqlite.sql", "(?6 IS NULL OR tenant = ?6)", "(?6 IS NULL OR TRUE)", STORE),
    Guard("tenants: an app is of its role's tenant", "app.py", "if store.info.tenant is not None and self.tenant not in (None, store.info.tenant):", "if False:",
          (f"{ROLES}::test_an_app_of_another_tenant_than_its_roles_is_misuse",)),
    Guard("tenants: a policy keeps the journal apart", "store/sql/postgres_schema_2.sql",
          "CREATE POLICY tenant ON semel.journal USING (tenant = (SELECT semel.my_tenant()));", "CREATE POLICY tenant ON semel.journal USING (true);",
          (f"{ROLES}::test_a_role_neither_sees_nor_changes_a_row_of_another_tenant",)),
    Guard("tenants: a role fences its own tenant's sessions alone", "store/sql/postgres_schema_2.sql",
          "CREATE POLICY tenant ON semel.session USING (tenant = (SELECT semel.my_tenant()));", "CREATE POLICY tenant ON semel.session USING (true);",
          (f"{ROLES}::test_a_role_cannot_fence_or_beat_for_a_session_that_is_not_its_tenants",)),
    Guard("tenants: a role sees who may hold its tasks", "store/sql/postgres_schema_2.sql",
          "CREATE POLICY works_for_all ON semel.session FOR SELECT USING (tenant = '');", "",
          (f"{ROLES}::test_a_task_that_a_worker_of_all_tenants_holds_is_no_orphan_to_its_tenant",)),
    Guard("tenants: a role sees the store's epochs", "store/sql/postgres_schema_2.sql",
          "CREATE POLICY of_the_store ON semel.journal FOR SELECT USING (tenant = '');", "",
          (f"{ROLES}::test_a_role_reads_the_stores_own_stream_and_writes_nothing_there",)),
    Guard("tenants: a role learns of no other's", "store/sql/postgres_schema_2.sql",
          "ALTER TABLE semel.tenant_role ENABLE ROW LEVEL SECURITY;", "",
          (f"{ROLES}::test_a_role_cannot_make_itself_another_tenants",)),
    Guard("tenants: a role that bypasses its policies is refused", "store/pgschema.py", "if tenant is not None and not fenced:", "if False:",
          (f"{ROLES}::test_a_tenants_role_that_no_policy_holds_is_refused",)),
    Guard("an effect inside an effect is refused", "engine/runtime.py", '_set(inside, "an effect"), ', "", BAD),
    Guard("an effect outside work is refused", "decorated.py", "    if attempt is None:\n        raise Misuse(", "    if attempt is None:\n        raise ValueError(", BAD),
    Guard("a plain call in a running loop is refused", "decorated.py", "    if in_loop():\n        raise Misuse(", "    if False:\n        raise Misuse(", BAD),
    # --- workers and a database ---
    Guard("a worker outlives a store that is away", "worker.py",
          "            except StoreUnavailable as error:\n                self._away(error)\n                await self._rest(AWAY_SECONDS)",
          "            except StoreUnavailable as error:\n                raise", AWAY),
    Guard("a store that is away keeps no worker from stopping", "worker.py", "timeout=GIVE_BACK_SECONDS)\n        for one", "timeout=None)\n        for one", STOP),
    Guard("a worker rests when there is nothing that it can claim", "worker.py", " and loop.time() >= self._not_before:", ":",
          ("tests/app/test_worker_in_vain.py",)),
    Guard("nobody behind what cannot be claimed starves", "store/passed.py", "            self._places.update(", "            dict().update(", STORE),
    Guard("what was passed over is asked for again", "store/passed.py", "                self._places.clear()", "                pass",
          ("tests/store/test_passed.py",)),
    Guard("nobody starves behind it on PostgreSQL either", "store/pgwrite.py", "        for walk in self._walks:\n            self._floors.passed.learn(walk)\n", "",
          ("tests/postgres/test_postgres_conformance.py::TestPostgres::test_however_many_cannot_be_claimed_nobody_behind_them_starves",)),
    # --- known traps of a database ---
    Guard("R5 a guard locks its session", "store/sql/postgres.sql", "ORDER BY id FOR KEY SHARE;", "ORDER BY id;", (f"{RACES}TestFences",)),
    Guard("R5 a fence waits for what is under way", "store/sql/postgres.sql", "WHERE id = %(id)s FOR UPDATE;", "WHERE id = %(id)s;",
          (f"{RACES}TestFences",)),
    Guard("R8 what is checked cannot move before it has landed", "store/sql/postgres.sql",
          "t.task = k.stream FOR SHARE)", "t.task = k.stream)", (f"{RACES}TestAppends",)),
    Guard("R5 a row that a rival was faster with is judged again", "store/postgres.py", "if error.diag.constraint_name not in RACES:", "if True:",
          (f"{RACES}TestAppends", f"{RACES}TestSharedKeys")),
    Guard("claims wait for no rival's", "store/pgwrite.py", "isinstance(error, (*LOCKED, errors.UniqueViolation))", "isinstance(error, LOCKED)",
          (f"{RACES}TestClaims",)),
    Guard("R7 a commit with a warning is not answered", "store/pglink.py", 'if answer.tag != "COMMIT" or self.warnings:', 'if answer.tag != "COMMIT":',
          ("tests/postgres/test_postgres_unknown.py::TestWarnings",)),
    Guard("R7 what follows an unanswered commit waits for the standby", "store/pgwrite.py", "if not self.wrote and (told or self._doubt):", "if False:",
          ("tests/postgres/test_postgres_unknown.py::TestWarnings",)),
    Guard("what a claim locks is chosen once", "store/sql/postgres.sql", "WITH found AS MATERIALIZED (\n    SELECT r.queue", "WITH found AS (\n    SELECT r.queue",
          ("tests/postgres/test_postgres_clock.py",)),
    Guard("no plan rests on statistics that are not there", "store/pglink.py",
          'BY_INDEX = {"enable_hashjoin": "off", "enable_mergejoin": "off", "enable_bitmapscan": "off"}', "BY_INDEX: dict[str, str] = {}", (PLANS,)),
    Guard("a hint that cannot be given fails nothing", "store/pglisten.py", "            if link.pid == 0:\n                raise", "            raise",
          ("tests/postgres/test_postgres_hints.py",)),
    Guard("one bad row starves no sweep behind it", "engine/session.py", '        log.exception("semel: task %s cannot be taken back", row.task)\n        return None, None, None',
          "        raise", SESSION),
    Guard("an idle listener is no need", "store/pglisten.py", "if self.listening.is_set() else -1 - int(time.monotonic() * 4)", "if True else 0",
          ("tests/postgres/test_postgres_unknown.py::TestHandles",)),
    Guard("behind a pool no setting is left", "store/pglink.py", "_settings(settings, local=True)", "_settings(settings, local=False)",
          ("tests/postgres/test_postgres_unknown.py::TestHandles",)),
    # --- one transaction for two ---
    Guard("R7 an Atomic effect cannot be committed without its confirm", "store/sql/postgres_schema.sql",
          "IF EXISTS (SELECT 1 FROM semel.unconfirmed u WHERE u.id = NEW.id) THEN", "IF false THEN",
          (f"{ATOMIC}it_cannot_commit_or_roll_back_by_itself",)),
    Guard("R7 an Atomic effect is committed with a confirm only", "engine/atomic.py",
          "if isinstance(draft, Refusal) or not _confirms(draft):", "if isinstance(draft, Refusal):",
          (f"{ATOMIC}one_whose_task_was_given_back_lands_nothing",)),
    Guard("R5 an Atomic confirm lands under the session's guard", "engine/ledger.py",
          "return Draft(decided, Change(identity, (part,), guard), after, head)", "return Draft(decided, Change(identity, (part,)), after, head)",
          (f"{ATOMIC}a_fenced_session_lands_nothing",)),
    Guard("R7 the journal speaks for what was recorded as Atomic alone", "machine/recovery.py",
          "if effect.atomic and not effect.conflict:", 'if rungs[0].kind == "atomic" and not effect.conflict:', RECOVERY),
    Guard("R7 only an Atomic submission is ruled out by the journal", "machine/effects.py", "if not effect.atomic or effect.conflict:", "if False:", CELLS),
    Guard("R7 a transaction that its function ended is a person's", "store/pgatomic.py", "self.strange = not failed", "self.strange = False",
          (f"{ATOMIC}one_that_ends_its_transaction_all_the_same_waits_for_a_person",)),
    Guard("R7 a lent connection is dead when its effect has ended", "store/pgatomic.py", "        if self.over:\n            gen.close()", "        if False:\n            gen.close()",
          (f"{ATOMIC}a_connection_that_was_kept_is_dead",)),
    Guard("R16 the server ends an Atomic transaction that stands still", "store/pgatomic.py", "int(idle_seconds * 1000)", "int(idle_seconds * 1000000)",
          (f"{ATOMIC}one_that_outlives_its_timeout_can_never_land",)),
    Guard("a borrowed connection is to the store's own database", "store/pgborrowed.py", "if store != info.id:", "if False:",
          (f"{BORROWED}another_database_is_refused_and_its_transaction_lives_on",)),
    Guard("a borrowed connection commits no part of a task", "store/pgborrowed.py", "if raw.autocommit and status is TransactionStatus.IDLE:", "if False:",
          (f"{BORROWED}a_transaction_block_on_an_autocommit_connection",)),
    Guard("a key that is taken fails no borrowed transaction", "store/sql/postgres.sql", "ON CONFLICT (tenant, kind, key) DO NOTHING RETURNING task", "RETURNING task",
          (f"{BORROWED}a_key_that_another_transaction_has_in_hand_is_waited_for",)),
    Guard("SQLAlchemy knows that its transaction has begun", "store/pgborrowed.py", 'if callable(begun := getattr(transaction, "in_transaction", None)) and not begun():', "if False:",
          (f"{BORROWED}sqlalchemy",)),
    # --- waiting ---
    Guard("the first signal of a name counts", "machine/tasks.py", "    if c.event in task.signals:\n        return e.Decision()", "    if False:\n        return e.Decision()", WAITS),
    Guard("a signal that has come is not waited for", "machine/tasks.py", "come = c.event in task.signals or ", "come = ", TASK_CELLS),
    Guard("a wait is no longer than the record can hold", "decorated.py", "    if wait > LONGEST_WAIT:\n", "    if False:\n", WAITS),
    Guard("a wait that was given up stays so", "decorated.py", "if not (known and known.over) and event in state.signals:", "if event in state.signals:", WAITS),
    Guard("R2 a wait loses what was submitted under a key of the tenant", "engine/ledger.py",
          "tasks.Block | tasks.Wait | tasks.LoseLease", "tasks.Block | tasks.LoseLease", SESSION),
    Guard("R2 a later end loses what an earlier attempt left open", "machine/tasks.py",
          "s.task == task and s.attempt <= attempt:", "s.task == task and s.attempt == attempt:", TASKS),
    Guard("R4 a later attempt's fence says nothing of an earlier sender", "machine/tasks.py",
          "gone = fenced and s.attempt == attempt", "gone = fenced", TASKS),
    Guard("what a wait loses of a shared key is looked into before it", "machine/tasks.py",
          "    unknown = own or _unknown(task, shared)", "    unknown = task.submitted or _unknown(task, shared)", TASKS),
    Guard("a late answer wakes no task that waits for a signal", "machine/tasks.py", "    if task.waiting:\n", "    if False:\n", WAITS),
    Guard("what is unknown is looked into before the wait", "machine/tasks.py", "if come or task.ending or unknown:", "if come or task.ending:", TASK_CELLS),
    Guard("how long is on record from the first time on", "decorated.py", "    until = known.until if known else now + ms\n", "    until = now + ms\n", WAITS),
    Guard("no part of a password is shown", "store/pglink.py", "if cut_off or _torn(given):", "if False:",
          ("tests/postgres/test_postgres_opening.py::test_no_part_of_a_password_is_shown",)),
    Guard("what is no URL is not shown", "store/places.py", "if colon and scheme.isalnum() else", "if True else",
          ("tests/postgres/test_postgres_opening.py::test_no_part_of_a_password_is_shown",)),
    # --- what cannot be started ---
    Guard("a claimed task that cannot be read goes back", "worker.py", "            session.held -= left\n", "            pass\n", START),
    Guard("nonsense of one tenant ends no worker", "worker.py", "except Exception:  # one tenant's", "except ZeroDivisionError:  # one tenant's", START),
    Guard("the streams of keys are read away from the loop", "worker.py",
          "return await self._asked(read) if taken.task.joined else read()", "return read()", START),
    Guard("a task taken here that cannot be read goes back", "direct.py",
          "    except BaseException:\n        session.held.discard((taken", "    except ZeroDivisionError:\n        session.held.discard((taken", START),
    Guard("the epoch is read where no loop waits", "engine/runtime.py", "self.desk.standing.read()  # now", "pass  # now", START),
    Guard("R17 nonsense keeps no other task from going back", "engine/session.py",
          "except Exception:  # one tenant's nonsense must not keep the others' tasks", "except ZeroDivisionError:  #", SESSION),
    Guard("R14 no session is watched for longer than any may have", "engine/session.py", "min(row.ttl_ms, longest)", "row.ttl_ms", SESSION),
    Guard("a worker that is fenced while it comes in says so", "worker.py", "        if self._failed:  # maybe", "        if self._failed and self._opened:  #", START),
    Guard("a store answers again when a question is answered", "worker.py",
          "changed = await self._asked(store.changed)\n",
          "changed = await self._asked(store.changed)\n            self._store_away = False\n", START),
    # --- restore ---
    Guard("R19 what was witnessed must be held", "engine/arrival.py", "if missing := desk.store.missing(seen):", 'if missing := "":', ARRIVAL),
    Guard("R19 a row that is another is missing", "store/contract.py",
          "if seen.row is not None and hash_there != seen.row[3]:", "if seen.row is not None and hash_there is None:", ARRIVAL),
    Guard("R19 a beat that is not held is missing", "store/contract.py",
          "if seen.beat is not None and (beat_there is None or beat_there < seen.beat[1]):", "if False:", ARRIVAL),
    Guard("R19 who has not checked writes no witness", "store/witness.py", "if self.path is None or not self.trusted:", "if self.path is None:", ARRIVAL),
    Guard("R19 what was seen later is not overwritten", "store/witness.py", "if self._is_later(seen):", "if False:", ARRIVAL),
    Guard("R19 without a witness a TTL is watched", "engine/arrival.py", "if quiet.seconds < wanted:", "if False:", ARRIVAL),
    Guard("R19 a gap is not watching", "engine/arrival.py", "quiet is None or now - quiet.last_look > self._ttl / 2", "quiet is None", ARRIVAL),
    Guard("R19 a store at another place needs a person", "engine/arrival.py", "if place != info.place:", "if False:", ARRIVAL),
    Guard("R19 an asynchronous standby needs a person", "engine/arrival.py",
          'elif "asynchronous" in (info.durability, kept.durability if kept else ""):', "elif False:", ARRIVAL),
    Guard("R19 asked on every connect", "store/postgres.py", "for seen in self._witness():", "for seen in ():",
          (f"{LIVING}test_who_only_accepts_tasks_goes_on_when_the_epoch_has_begun",)),
    Guard("R19 a file that is copied into has another log", "store/sqlite.py",
          "return self._path is None or (sqlitefile.inode(self._path), self._log_now()) == (self._inode, self._log)",
          "return self._path is None or sqlitefile.inode(self._path) == self._inode",
          (f"{LIVING}test_a_worker_notices_that_its_file_was_changed_under_it",)),
    Guard("R20 the largest TTL is watched", "engine/arrival.py", "            if left > 0:", "            if False:", ARRIVAL),
    Guard("R20 what was accepted since says nothing of when it went back to", "engine/arrival.py",
          "desk.store.highest_at(until)", "desk.store.highest_at(10**15)", ARRIVAL),
    Guard("R20 an epoch begins only where it was seen", "machine/epochs.py",
          "if state.epoch > c.seen or c.seen > c.witnessed:", "if False:", EPOCHS),
    Guard("R20 an epoch is above the witness", "machine/epochs.py",
          "max(c.seen, c.witnessed, c.now, c.above)", "max(c.seen, c.now, c.above)", EPOCHS),
    Guard("R20 what was in doubt still is", "machine/epochs.py",
          "since = min(event.since, state.since) if state.doubtful else event.since", "since = event.since", EPOCHS),
    Guard("R20 what is accepted in the window is in doubt", "machine/epochs.py", " and not task.doubt:", ":", EPOCHS),
    Guard("R20 a task is told that the window was open", "engine/queue.py", "store.epoch, store.window\n", "store.epoch, False\n", DOUBT),
    Guard("R20 in doubt the first submission looks up first", "machine/effects.py",
          "if c.doubt is not None and _doubtful(effect, c, c.doubt):", "if False:", MIDDLE),
    Guard("R20 the age counts from when it went back to", "machine/effects.py", "since = min(at, e.since)", "since = at", MIDDLE),
    Guard("R20 keys of the tenant are in doubt", "engine/attempt.py",
          'epoch.doubt(self.ledger.state if scope == "task" else None)', "epoch.doubt(self.ledger.state)", DOUBT),
)  # fmt: skip
