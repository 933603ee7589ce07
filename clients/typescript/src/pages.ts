/** Yields the pages of a list. `load` gets the token of a page, empty for the first one. */
export async function* pages<Page extends { nextPageToken: string }>(
  load: (pageToken: string) => Promise<Page>,
): AsyncGenerator<Page> {
  let pageToken = "";
  do {
    const page = await load(pageToken);
    yield page;
    pageToken = page.nextPageToken;
  } while (pageToken);
}
