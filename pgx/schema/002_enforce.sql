-- +goose Up
-- Enforcement: a trigger that refuses writes without a token, or with a lower one.
-- Running it again changes nothing.

-- enforce puts the trigger on a table (and so on all its partitions). What refuses
-- TRUNCATE is put on each partition that is there; run it again after adding some.
-- The trigger
-- reads two settings that last until the end of the transaction:
--   fencekit.token   the token of the statement, left there by every helper
--   fencekit.sealed  the tokens of the transaction, left there by fencekit.seal
-- A row passes if its new fence is the statement's token, or, if the statement does
-- not touch the fence in a transaction sealed with one token, takes that token; and
-- if that is not lower than the fence before. Otherwise it raises ZF001 (lower) or
-- ZF002 (no token). Whoever has become the bypass role by SET ROLE passes.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION fencekit.enforce(target regclass, fence_column name DEFAULT 'fence_token', bypass_role name DEFAULT 'fencekit_bypass') RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER SET search_path = pg_catalog, pg_temp AS $enforce$
DECLARE
    guard name := 'guard_' || md5(fence_column);
    part  regclass;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('fencekit.enforce', 0));
    EXECUTE format($template$
        CREATE OR REPLACE FUNCTION fencekit.%1$I() RETURNS trigger
        LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, pg_temp AS $guard$
        DECLARE
            statement_token bigint := nullif(current_setting('fencekit.token', true), '');
            sealed          text   := nullif(current_setting('fencekit.sealed', true), '');
            sealed_token    bigint := CASE WHEN position(',' in sealed) = 0 THEN sealed::bigint END;
            before_token    bigint := 0;
            after_token     bigint;
        BEGIN
            IF current_user = TG_ARGV[0] THEN
                IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
                RETURN NEW;
            END IF;
            IF TG_OP = 'TRUNCATE' THEN
                RAISE EXCEPTION USING ERRCODE = 'ZF002', MESSAGE = format('TRUNCATE of %%s, which is fenced', TG_RELID::regclass);
            END IF;
            IF TG_OP <> 'INSERT' THEN before_token := coalesce(OLD.%2$I, 0); END IF;
            IF TG_OP = 'DELETE' THEN
                after_token := coalesce(statement_token, sealed_token);
            ELSIF NEW.%2$I = statement_token OR NEW.%2$I::text = ANY (string_to_array(sealed, ',')) THEN
                after_token := NEW.%2$I;
            ELSIF coalesce(NEW.%2$I, 0) = before_token THEN
                after_token := sealed_token;
                NEW.%2$I := sealed_token;
            END IF;
            IF after_token IS NULL THEN
                RAISE EXCEPTION USING ERRCODE = 'ZF002',
                    MESSAGE = format('%%s of %%s carries no fencing token', TG_OP, TG_RELID::regclass),
                    HINT = 'Write through a helper of pgxfence, or in a transaction that has called fencekit.seal for one resource.';
            ELSIF after_token < before_token THEN
                RAISE EXCEPTION USING ERRCODE = 'ZF001', DETAIL = before_token::text,
                    MESSAGE = format('stale fencing token %%s for a row of %%s: it has seen %%s', after_token, TG_RELID::regclass, before_token);
            END IF;
            IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
            RETURN NEW;
        END $guard$
    $template$, guard, fence_column);
    PERFORM fencekit.unenforce(target);
    EXECUTE format('CREATE TRIGGER zz_fencekit_guard BEFORE INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW EXECUTE FUNCTION fencekit.%I(%L)', target, guard, bypass_role);
    FOR part IN SELECT target UNION SELECT t.relid FROM pg_partition_tree(target) t LOOP
        EXECUTE format('CREATE TRIGGER zz_fencekit_truncate BEFORE TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION fencekit.%I(%L)', part, guard, bypass_role);
    END LOOP;
END $enforce$;
-- +goose StatementEnd

-- unenforce takes the trigger away again. Taking it away twice is fine.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION fencekit.unenforce(target regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    part regclass;
BEGIN
    EXECUTE format('DROP TRIGGER IF EXISTS zz_fencekit_guard ON %s', target);
    FOR part IN SELECT target UNION SELECT t.relid FROM pg_partition_tree(target) t LOOP
        EXECUTE format('DROP TRIGGER IF EXISTS zz_fencekit_truncate ON %s', part);
    END LOOP;
END $$;
-- +goose StatementEnd

-- version tells the code what is here. It comes last.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION fencekit.version() RETURNS integer
LANGUAGE sql IMMUTABLE AS $$ SELECT 1 $$;
-- +goose StatementEnd
