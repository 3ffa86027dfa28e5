"""Markup escapes whatever enters it, keys and values, and keeps texts short."""

from html.parser import HTMLParser

from hypothesis import given, settings
from hypothesis import strategies as st

from scalable_gpe.formatting import MAX_TEXT, element, text


class Reader(HTMLParser):
    """Read back tags, attributes and texts."""

    def __init__(self, markup):
        super().__init__(convert_charrefs=True)
        self.tags, self.values, self.texts = [], [], []
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.values += [value for _, value in attributes]

    def handle_data(self, data):
        self.texts.append(data)


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=50), st.text(max_size=50))
def test_any_text_comes_back_as_text(content, value):
    found = Reader(element("p", text(content), title=value))
    assert found.tags == ["p"] and found.values == [value]
    assert "".join(found.texts) == content


def test_lone_surrogates_can_be_written():
    assert element("p", text("a\ud800"), title="\udfff").encode() == b'<p title="?">a?</p>'


def test_names_of_attributes():
    assert element("label", for_="x", aria_label="y") == '<label for="x" aria-label="y"></label>'
    assert element("img", src="z") == '<img src="z">'


def test_long_texts_are_shortened():
    assert text("&" * 5000) == "&amp;" * (MAX_TEXT - 1) + "…"
