"""Calls of the functions that first programs offer (weather, search, sums, mail and the like), and
of functions that take the fields of a sentence.
"""

from string import Formatter

from ..world.document import Document, Pen
from ..world.functions import Function, Value, object_schema, parameter
from ..world.invented import acronym, email, firm, full_name, place, product, spelled
from ..world.prose import FIELDS
from .calls import Asked, conversation
from .common import THEMES
from .extraction import is_number, wanted
from .records import quoted

USUAL = """
get_weather current_weather weather get_forecast fetch_weather
What is the weather in {city}? | How is the weather in {city}? | Is it raining in {city}?
Weather in {city} | What is the weather like in {city} today? | Do I need an umbrella in {city}?
Tell me the weather for {location}. | How warm is it in {location}? | Will it rain in {place}?

get_time current_time time_in get_local_time
What time is it in {city}? | Tell me the time in {city}. | What is the local time in {location}?

search web_search search_web google find_documents retrieve search_docs
Search for {query}. | Find something about {query}. | Look for {query} on the web.
Search the web for {query}. | What do you find about {query}? | Google {query}.

calculate calculator evaluate math solve
Calculate {expression}. | What is {expression}? | Compute {expression}. | How much is {expression}?

add add_numbers sum plus add_two_numbers
Add {a} and {b}. | What is {a} plus {b}? | What is the sum of {a} and {b}? | Add {x} to {y}.

multiply multiply_numbers product_of times
Multiply {a} by {b}. | What is {a} times {b}? | What is {x} multiplied by {y}?

subtract minus difference
Subtract {a} from {b}. | What is {a} minus {b}?

send_email send_mail email compose_email write_email
Send an email to {to} about {subject}. | Write to {to} about {subject}. | Mail {to} on {subject}.

get_stock_price stock_price quote get_quote
What is the price of {ticker}? | How much is {symbol} today? | Get the stock price of {ticker}.

book_flight find_flights search_flights flight
Book a flight from {origin} to {destination}. | Find flights from {origin} to {destination}.
I want to fly from {origin} to {destination} on {date}. | Fly me to {destination} on {date}.

create_event add_event schedule_meeting add_to_calendar
Schedule a meeting with {name} on {date}. | Put {title} in my calendar on {date}.
Meet {person} at {time} on {date}. | Create an event called {title} on {date}.

order order_item buy place_order add_to_cart
Order {quantity} {item}. | I would like to buy {quantity} {item}.
Put {quantity} {item} in my cart.

get_user find_user lookup_user get_customer find_person get_person
Find the user {name}. | Who is {name}? | Show me the customer {name}. | Look up {user}.

get_population population city_info get_city country_info
How many people live in {city}? | What is the population of {city}? | Tell me about {country}.

remind set_reminder create_reminder add_todo
Remind me of {task} on {date}. | Remind me of {task} at {time}. | Add {task} to my list.

play play_song play_music
Play {song}. | Play {title} by {artist}. | I want to hear {artist}.

greet say_hello welcome hello
Greet {name}. | Say hello to {name}. | Please welcome {name}.

read_file open_file get_file load
Read the file {path}. | Open {path}. | What is in {filename}? | Show me {path}.

get_product find_product check_stock get_price
How much is the {product}? | Do we have the {product}? | Find the price of the {product}.
"""


def usual_source(pen: Pen, key: str) -> str:
    """A value for a parameter of one of the usual functions."""
    if key in ("a", "b", "x", "y"):
        return pen.words.drawn(lambda: str(pen.rng.randint(0, 10 ** pen.rng.randint(1, 4))))
    if key == "expression":
        a, b = pen.rng.randint(1, 999), pen.rng.randint(1, 99)
        return pen.words.drawn(lambda: f"{a} {pen.one(*'+-*/')} {b + pen.rng.randint(0, 99)}")
    sources = {
        "query": lambda: pen.one(pen.one(*THEMES), product(pen), full_name(pen), firm(pen)),
        "task": lambda: pen.one(*THEMES), "subject": lambda: pen.one(*THEMES),
        "to": lambda: pen.one(email(pen), full_name(pen)), "artist": lambda: full_name(pen),
        "ticker": lambda: acronym(pen), "symbol": lambda: acronym(pen),
        "song": lambda: product(pen),
        "person": lambda: full_name(pen), "place": lambda: place(pen),
        "location": lambda: place(pen),
        "path": lambda: f"{spelled(pen, 2)}.{pen.one('txt', 'md', 'csv', 'json', 'py')}",
        "filename": lambda: f"{spelled(pen, 2)}.{pen.one('txt', 'csv', 'pdf')}",
    }  # fmt: skip
    return sources[key]() if key in sources else FIELDS[key](pen)


FUNCTIONS = tuple(
    (names.split(), [text.strip() for text in texts.replace("\n", "|").split("|")])
    for names, _, texts in (block.partition("\n") for block in USUAL.strip().split("\n\n"))
)


def usual_calls(pen: Pen) -> Document:
    """The usual functions, one or two of which are asked for."""
    return conversation(
        pen, "usual_calls", [usual_asked(pen) for _ in range(pen.rng.choice((1, 1, 1, 2)))]
    )


def usual_asked(pen: Pen) -> Asked:
    """A request for one of the usual functions."""
    names, texts = pen.rng.choice(FUNCTIONS)
    text = pen.one(*texts)
    keys = [key for _, key, _, _ in Formatter().parse(text) if key]
    values = {key: usual_source(pen, key) for key in keys}
    asked = taking(pen, pen.one(*names), values)
    return asked._replace(request=text.format_map(values) + pen.one("", "", "", " Use the tool."))


def taking(pen: Pen, name: str, values: dict[str, str]) -> Asked:
    """A function that takes these values, and its arguments; the request is still empty."""
    is_amount = {key: is_number(key, value) or key in "abxy" for key, value in values.items()}
    parameters = tuple(
        parameter(
            pen, key, ("number" if "." in value else "integer") if is_amount[key] else "string"
        )
        for key, value in values.items()
    )
    arguments = tuple(
        Value(value, value if is_amount[key] else quoted(value)) for key, value in values.items()
    )
    return Asked(Function(name, parameters, object_schema(pen, parameters)), "", arguments)


def prose_calls(pen: Pen) -> Document:
    """A sentence whose fields are handed to a function that takes them."""
    passage, fields = wanted(pen)
    noun = pen.one("record", "data", "info", "details", "entry", "fields", "item")
    name = pen.words.drawn(
        lambda: pen.one(
            f"{pen.one('extract', 'save', 'store', 'Extract', 'parse', 'submit')}_{noun}",
            noun.capitalize(), pen.one("Person", "Order", "Product", "Event", "Company", "Answer"),
            spelled(pen, 2).capitalize(),
        )
    )  # fmt: skip
    lead = pen.one(
        "", "", "Extract the data: ", "Save this: ", "Read: ", "Extract from this text: "
    )
    asked = taking(pen, name, fields)
    return conversation(pen, "prose_calls", [asked._replace(request=lead + passage)])
