"""Free-form sentences about orders, people, products and the like, whose names are invented.

A `Kind` has fields, each with a source of values, and sentences that tell some of them. One
sentence in eight is kept for exams, as one invented name in eight is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from string import Formatter

from .document import Pen
from .facts import COLOURS, JOBS, is_held_out
from .invented import GOODS, code, date, email, firm, full_name, phone, place, price, product

Source = Callable[[Pen], str]


def whole(least: int, most: int) -> Source:
    return lambda pen: str(pen.rng.randint(least, most))


def among(*options: str) -> Source:
    return lambda pen: pen.one(*options)


INDUSTRIES = (
    "software",
    "furniture",
    "coffee",
    "toys",
    "steel",
    "travel",
    "shoes",
    "paper",
    "film",
)
PETS = ("dog", "cat", "horse", "parrot", "rabbit", "goat", "hamster", "tortoise")
FAULTS = (
    "the page does not load", "the password is rejected", "the printer is silent",
    "the app crashes",
    "the invoice is missing", "the screen stays black", "the file cannot be opened",
)  # fmt: skip
SUBJECTS = (
    "gardening", "bees", "old maps", "jazz", "local history", "databases", "cooking", "chess",
    "compilers", "poetry", "the budget", "safety", "marketing", "robots",
)  # fmt: skip
HOURS = ("9 am", "10:30", "noon", "14:00", "3 pm", "18:15", "8 pm", "7:45", "11 am", "16:30")
TIERS = ("low", "medium", "high", "urgent")

FIELDS: dict[str, Source] = {
    "customer": full_name, "name": full_name, "author": full_name, "owner": full_name,
    "founder": full_name, "mayor": full_name, "passenger": full_name, "speaker": full_name,
    "user": full_name, "guest": full_name, "patient": full_name, "doctor": full_name,
    "manager": full_name, "winner": full_name, "city": place, "town": place, "origin": place,
    "destination": place, "company": firm, "maker": firm, "shop": firm, "hotel": firm, "team": firm,
    "product": product, "pet": lambda pen: full_name(pen).split()[-1], "title": product,
    "item": among(*(f"{it}s" for it in GOODS if it not in ("watch",))), "thing": among(*GOODS),
    "quantity": whole(2, 99), "age": whole(18, 96), "years": whole(1, 19), "stock": whole(2, 900),
    "employees": whole(5, 9000), "population": whole(200, 99000), "pages": whole(40, 900),
    "founded": whole(1850, 2024), "year": whole(1900, 2026), "nights": whole(2, 14),
    "rooms": whole(1, 6), "points": whole(3, 180), "price": price, "total": price, "date": date,
    "time": among(*HOURS), "number": code, "flight": code, "email": email, "phone": phone,
    "job": among(*JOBS), "colour": among(*sorted(set(COLOURS.values()))),
    "subject": among(*SUBJECTS),
    "industry": among(*INDUSTRIES), "species": among(*PETS), "problem": among(*FAULTS),
    "priority": among(*TIERS), "country": place, "river": place, "weight": whole(1, 95),
}  # fmt: skip
NUMBERS = frozenset((
    "quantity", "age", "years", "stock", "employees", "population", "pages", "founded", "year",
    "nights", "rooms", "points", "price", "total", "weight",
))  # fmt: skip

TEXTS = """
{customer} ordered {quantity} {item} from {shop} on {date}.
On {date}, {customer} bought {quantity} {item} for {total} euros.
{shop} sold {quantity} {item} to {customer} for {total} dollars.
Order {number}: {quantity} {item} for {customer}, to be sent to {city}.
Please send {quantity} {item} to {customer} in {city}. The order number is {number}.
The order {number} of {customer} over {quantity} {item} comes to {total} euros.
Hello, this is {customer} from {city}. I would like to order {quantity} {item}.
{customer} of {city} paid {total} euros for {quantity} {item}.
{customer} paid ${total} for {quantity} {item}.
{customer} bought {quantity} {item}.
{quantity} {item} for {customer}, please.
A parcel with {quantity} {item} went from {shop} to {customer} in {city} on {date}.
We confirm that {customer} has ordered {quantity} {item} at {total} euros (number {number}).
Dear {shop}, I want to return the {quantity} {item} that I bought on {date}. Regards, {customer}

{name}, {age}, works as a {job} at {company} in {city}.
{name} is a {age}-year-old {job} from {city}.
{name} works for {company} and lives in {city}.
My name is {name}, I am {age} years old and I live in {city}.
Contact: {name}, {email}, {phone}.
You can reach {name} of {company} at {email} or call {phone}.
I am {name}, a {job} from {city}. Write to {email}.
{name} joined {company} as a {job} on {date}.
Meet {name}: {job}, {age} years old, born in {city}.
{company} has hired {name}, a {job} from {city}.
Born in {city}, {name} became a {job} at the age of {age}.
After ten years in {city}, the {job} {name} moved to {company}.
At {company} there is a {job} called {name}, whose number is {phone}.
{name}, {age}, of {city}.
{name} ({age}) from {city}
{name} is {age} years old and lives in {city}.
{name} lives in {city}.
{name} is a {job}.
I live in {city}. My name is {name}.
{name}, {job} at {company}, {city}
The {job} is called {name} and is {age}.

The {product} by {maker} costs {price} euros and comes in {colour}.
{maker} sells the {product} for {price} dollars.
New from {maker}: the {product}, a {colour} {thing} for {price} euros.
The {thing} {product} weighs {weight} kg and costs {price} euros.
We have {stock} pieces of the {product} in stock, at {price} euros each.
The {product} is a {colour} {thing} made by {maker}.
Looking for a {thing}? The {product} from {maker} is yours for {price} dollars.
{maker} has launched the {product}, which weighs {weight} kg.
I bought a {colour} {product} for {price} euros and I love it.
The {product} costs ${price}.
The {thing} {product} costs {price} euros.
{product}: a {colour} {thing} for ${price}
There are {stock} left of the {colour} {thing} called {product}.
For {price} euros you get the {product}, the best {thing} that {maker} makes.

{company} was founded by {founder} in {founded} and has {employees} employees.
{founder} founded {company} in {city} in {founded}.
{company}, based in {city}, makes {industry} and employs {employees} people.
The {industry} firm {company} has {employees} workers in {city}.
{company} is a company for {industry} from {city}. Its manager is {manager}.
In {founded}, {founder} started {company}, which today has {employees} employees.
{manager} leads {company}, a {industry} company in {city} since {founded}.
With {employees} employees, {company} is the largest firm of {city}.

{speaker} will talk about {subject} in {city} on {date} at {time}.
The meeting about {subject} is on {date} at {time} with {speaker}.
Come to {city} on {date}: {speaker} speaks about {subject} at {time}.
On {date}, {company} invites you to an evening on {subject} with {speaker}.
{speaker} from {company} gives a course on {subject}, starting on {date} at {time}.
Reminder: {subject} with {speaker}, {date}, {time}.
Let us meet at {time} on {date} in {city} to discuss {subject}.

{town} is a town of {population} people on the river {river}. Its mayor is {mayor}.
The mayor of {town} is {mayor}. The town has {population} inhabitants.
{town}, in {country}, has {population} inhabitants.
{mayor} was elected mayor of {town} in {year}.
About {population} people live in {town}, which lies in {country}.
In {year}, the people of {town} on the {river} chose {mayor} as their mayor.

{passenger} flies from {origin} to {destination} on {date} with flight {flight}.
Flight {flight} from {origin} to {destination} leaves at {time}.
{passenger} booked a ticket from {origin} to {destination} for {price} euros.
Please book a flight for {passenger} from {origin} to {destination} on {date}.
The train from {origin} to {destination} leaves at {time} and costs {price} euros.
I need to get from {origin} to {destination} by {time} on {date}.
{passenger} left {origin} at {time} and reached {destination} with {flight}.

{guest} booked {rooms} rooms at {hotel} for {nights} nights.
{guest} stays at {hotel} in {city} for {nights} nights, from {date}.
{hotel} confirms {nights} nights for {guest} at {price} euros each.
A booking for {guest}: {nights} nights, {rooms} rooms, arrival on {date}.
From {date} on, {guest} will spend {nights} nights at {hotel} for {total} euros.

{title} is a book by {author} of {pages} pages, published in {year}.
{author} wrote {title} in {year}.
The novel {title} by {author} has {pages} pages and costs {price} euros.
In {year}, {author} published {title} with {company}.
I read {title}, all {pages} pages of it, and {author} is now my favourite writer.

{pet} is a {years}-year-old {species} that belongs to {owner}.
{owner} has a {colour} {species} called {pet}.
The {species} {pet} lives with {owner} in {city} and is {years} years old.
Lost in {city}: {pet}, a {colour} {species}. Please call {owner} at {phone}.
{owner} from {city} is looking for the {species} {pet}, who weighs {weight} kg.

Ticket {number}: {user} reports that {problem}. Priority: {priority}.
{user} wrote on {date} that {problem}. The ticket is {number}.
Ticket {number} of {user} has the priority {priority}, because {problem}.
On {date}, {user} of {company} called: {problem}.
It is {priority} that somebody helps {user}, since {problem} ({number}).

{team} won with {points} points on {date} in {city}.
{winner} of {team} scored {points} points in {city}.
On {date}, {winner} won the race in {city}.
{team} lost in {city}, though {winner} made {points} points.

{patient}, {age}, saw Dr. {doctor} on {date}.
{doctor} will see the patient {patient} on {date} at {time}.
The patient {patient} from {city} is {age} years old. The doctor is {doctor}.
An appointment for {patient} with {doctor} was made for {time} on {date}.
"""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence with its fields in braces."""

    text: str

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(field for _, field, _, _ in Formatter().parse(self.text) if field)


KINDS = tuple(
    tuple(Sentence(line) for line in block.split("\n")) for block in TEXTS.strip().split("\n\n")
)


def sentences(kind: tuple[Sentence, ...], held_out: bool) -> list[Sentence]:
    """Those of a kind for training, or those kept for exams, of which some kinds have none."""
    return [it for it in kind if is_held_out(it.text) == held_out]


def prose(pen: Pen, held_out: bool) -> tuple[str, dict[str, str]]:
    """One or two sentences about one thing, and the fields that they tell, in their order."""
    told = pen.rng.choice([found for kind in KINDS if (found := sentences(kind, held_out))])
    chosen = pen.rng.sample(told, 2 if len(told) > 1 and pen.chance(0.3) else 1)
    fields = {key: FIELDS[key](pen) for it in chosen for key in it.fields}
    for a, b in (("item", "thing"), ("origin", "destination")):
        if a in fields and fields[a] == fields.get(b):
            fields[b] = FIELDS[b](pen)
    return " ".join(it.text.format_map(fields) for it in chosen), fields
