"""An agent that orders in a real Chromium: with the wrong profile, or logged out, it orders nothing; in the end, once."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.async_api import BrowserContext, Page, Playwright, Route, async_playwright
from shop_site import Shop, shop

import semel

QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


async def opened(playwright: Playwright, chromium: str, profile: Path) -> BrowserContext:
    """A browser on a profile of the disk."""
    return await playwright.chromium.launch_persistent_context(
        str(profile), executable_path=chromium, args=list(QUIET), timeout=60_000
    )


async def sends_once(page: Page) -> asyncio.Future[None]:
    """Chromium sends a form again by itself when the connection is cut (R12). Told how the one request ended."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def once(route: Route) -> None:
        if route.request.method != "POST":
            await route.continue_()
            return
        try:
            await route.fulfill(response=await route.fetch(max_retries=0))
            ended.set_result(None)
        except Exception as error:
            await route.abort()
            ended.set_exception(ConnectionError(str(error).splitlines()[0]))

    await page.route("**/*", once)
    return ended


class Agent:
    """It orders in the browser whose profile it was given. browsers: by the profile's name."""

    def __init__(self, site: Shop, folder: Path) -> None:
        self.site, self.browsers, self.profile = site, dict[str, BrowserContext](), "hers"
        self.app = app = semel.App(f"sqlite:///{folder}/agent.db")
        self.where = urlsplit(site.url).netloc

        async def logged_in() -> dict[str, str]:
            page = await self.page("/account")
            account = await page.inner_text("#who", timeout=20_000)
            return {"profile": self.profile, "account": account, "target": urlsplit(page.url).netloc}

        async def in_orders(submission: semel.Submission) -> semel.Verdict:
            page = await self.page("/orders")
            there = await page.locator(f"[data-ref={submission.key}]").count()
            return semel.Confirmed(submission.key) if there else semel.NotFound()

        @app.effect(
            intent=("item",),
            identity=logged_in,
            recovery=semel.Lookup(in_orders, settle=timedelta(0)),
            timeout=timedelta(seconds=60),
        )
        async def order(submission: semel.Submission, item: str) -> str:
            page = await self.page("/")
            ended = await sends_once(page)
            await page.fill("#ref", submission.key)
            await page.click("#buy", no_wait_after=True)
            try:
                await ended
            finally:
                await page.unroute_all(behavior="wait")
            await page.wait_for_selector("#ok", timeout=20_000)
            return submission.key

        self.order = order

    async def page(self, path: str) -> Page:
        page = self.browsers[self.profile].pages[0]
        await page.goto(self.site.url + path)
        return page

    async def work(self) -> str:
        async with self.app.work("book", kind="shopper"):
            semel.bind(profile="hers", account="alice", target=self.where)
            return str(await self.order("book"))

    async def held(self) -> str:
        """Why the work is held, which must be for its identity."""
        with pytest.raises(semel.Unsettled, match="identity_mismatch") as caught:
            await self.work()
        assert caught.value.why == "blocked"
        return str(caught.value)

    async def mended(self) -> None:
        (task,) = await self.app.tasks.alist()
        await self.app.review.areplay(task.ref, by="ann", reason="logged in again")


async def story(agent: Agent, playwright: Playwright, chromium: str, folder: Path, stack: AsyncExitStack) -> None:
    site = agent.site
    for name, account in (("hers", "alice"), ("his", "bob")):
        agent.browsers[name] = await opened(playwright, chromium, folder / name)
        agent.profile = name
        await agent.page(f"/login?{account}")
        if name == "hers":  # the login is the profile's: it is there when the browser comes back
            await agent.browsers[name].close()
            agent.browsers[name] = await opened(playwright, chromium, folder / name)
        stack.push_async_callback(agent.browsers[name].close)

    said = await agent.held()
    for differs in ("profile is bound to 'hers', and 'his' is observed", "account is bound to 'alice', and 'bob' is observed"):
        assert differs in said
    agent.profile = "hers"
    kept = dict(site.sessions)
    site.sessions.clear()
    await agent.mended()
    assert "account is bound to 'alice', and 'nobody' is observed" in await agent.held()
    assert not site.posts and not site.orders

    site.sessions.update(kept)
    site.cuts = True  # the order is placed, the answer is lost, and everybody is logged out
    await agent.mended()
    assert "'nobody' is observed" in await agent.held()
    assert len(site.orders) == 1 and not site.orders_pages, "it was looked up in nobody's orders"

    await agent.page("/login?alice")
    await agent.mended()
    key = await agent.work()
    assert site.orders == [(key, "alice")] and site.posts == 1 and site.orders_pages == 1
    (effect,) = await agent.app.effects.alist()
    assert effect.state == "confirmed" and effect.submissions == 1


def test_an_order_in_a_real_browser_is_placed_once_and_as_nobody_else(chromium: str, tmp_path: Path) -> None:
    async def runs() -> None:
        with shop() as site:
            agent = Agent(site, tmp_path)
            async with async_playwright() as playwright, AsyncExitStack() as stack:
                await story(agent, playwright, chromium, tmp_path, stack)
            await agent.app.aclose()

    asyncio.run(runs())
